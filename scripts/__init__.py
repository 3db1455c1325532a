"""What `make install` and `make demo-kubernetes` run."""
