"""What is asked of TensorFlow: its public interface, and every private name of it that is touched."""
