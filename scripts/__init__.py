"""What `make install` and `make demo` run."""
