"""A path of NVIDIA's distributed-embeddings."""
