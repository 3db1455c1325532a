// Command registry is a container registry that keeps images in a folder, for tests of pushes and pulls.
// It is called as the official image's program is: registry serve CONFIGURATION.
package main

import (
	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

func main() {
	_ = registry.RootCmd.Execute() // it has told of its error, and ends the process for those that count
}
