"""RECAP written for reading: dictionaries, heapq and brute force. The kernels must equal it."""
