package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// fakeGPUs is a device plugin whose devices are names and nothing else. A file named after a
// device in the folder `unhealthy` makes that device unhealthy.
type fakeGPUs struct {
	deviceplugin.UnimplementedDevicePluginServer
	resource  string
	ids       []string
	unhealthy string

	lock    sync.Mutex
	changed chan struct{} // closed, and replaced, when the folder has changed
}

func runFakeGPUPlugin() int {
	flags := flag.NewFlagSet("fake-gpu-plugin", flag.ExitOnError)
	resource := flags.String("resource", "nvidia.com/gpu", "extended resource to offer")
	count := flags.Int("count", 8, "number of devices")
	unhealthy := flags.String("unhealthy-dir", "", "folder with a file for each unhealthy device")
	_ = flags.Parse(os.Args[1:]) // ExitOnError: does not return an error
	plugin := &fakeGPUs{resource: *resource, unhealthy: *unhealthy, changed: make(chan struct{})}
	for i := range *count {
		plugin.ids = append(plugin.ids, fmt.Sprintf("GPU-%04d", i))
	}
	fmt.Fprintln(os.Stderr, "fake-gpu-plugin:", plugin.serve())
	return 1
}

// serve registers again whenever the kubelet has made its socket anew, because a kubelet that
// starts removes the sockets of all plugins and forgets them. It returns only with an error.
func (g *fakeGPUs) serve() error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	for _, folder := range []string{deviceplugin.DevicePluginPath, g.unhealthy} {
		if err := errors.Join(os.MkdirAll(folder, 0o755), watcher.Add(folder)); err != nil {
			return err
		}
	}
	kubeletSocket := filepath.Clean(deviceplugin.KubeletSocket)
	var server *grpc.Server
	if _, err := os.Stat(kubeletSocket); err == nil {
		server = g.register()
	}
	for {
		select {
		case event := <-watcher.Events:
			switch {
			case filepath.Dir(event.Name) == filepath.Clean(g.unhealthy):
				g.tellStreams()
			case event.Name == kubeletSocket && event.Has(fsnotify.Create):
				if server != nil {
					server.Stop()
				}
				server = g.register()
			}
		case err := <-watcher.Errors:
			return err
		}
	}
}

// register listens on the plugin's own socket and makes it known to the kubelet. A failure is
// only reported: the kubelet has died, and its next start brings the next try.
func (g *fakeGPUs) register() *grpc.Server {
	name := "fake-gpu.sock"
	path := filepath.Join(deviceplugin.DevicePluginPath, name)
	_ = os.Remove(path) // left behind by a plugin that was killed
	listener, err := net.Listen("unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot listen:", err)
		return nil
	}
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, g)
	go func() { _ = server.Serve(listener) }()
	connection, err := grpc.NewClient("unix:"+filepath.Clean(deviceplugin.KubeletSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		defer connection.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err = deviceplugin.NewRegistrationClient(connection).Register(ctx, &deviceplugin.RegisterRequest{
			Version: deviceplugin.Version, Endpoint: name, ResourceName: g.resource,
		}, grpc.WaitForReady(true))
	}
	fmt.Fprintf(os.Stderr, "registered %d devices as %s (error: %v)\n", len(g.ids), g.resource, err)
	return server
}

func (g *fakeGPUs) tellStreams() {
	g.lock.Lock()
	defer g.lock.Unlock()
	close(g.changed)
	g.changed = make(chan struct{})
}

// ListAndWatch sends all devices at once and again after each change of the folder.
func (g *fakeGPUs) ListAndWatch(_ *deviceplugin.Empty, stream grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	for {
		g.lock.Lock()
		changed := g.changed
		g.lock.Unlock()
		if err := stream.Send(&deviceplugin.ListAndWatchResponse{Devices: g.devices()}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (g *fakeGPUs) devices() []*deviceplugin.Device {
	devices := make([]*deviceplugin.Device, 0, len(g.ids))
	for _, id := range g.ids {
		health := deviceplugin.Healthy
		if _, err := os.Stat(filepath.Join(g.unhealthy, id)); err == nil {
			health = deviceplugin.Unhealthy
		}
		devices = append(devices, &deviceplugin.Device{ID: id, Health: health})
	}
	return devices
}

// GetDevicePluginOptions asks for neither of the optional calls.
func (g *fakeGPUs) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

// Allocate tells a container its devices the way NVIDIA's plugin does.
func (g *fakeGPUs) Allocate(_ context.Context, request *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	response := &deviceplugin.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &deviceplugin.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
		})
	}
	return response, nil
}
