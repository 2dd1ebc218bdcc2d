"""TensorFlow's graphs: the inputs and outputs of the library's ops, and its collections."""
