"""Scripts for `make install`, `make demo-kubernetes` and other targets."""
