"""The only package that uses TensorFlow: its public interface, and every private name that is touched."""
