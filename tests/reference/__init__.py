"""RECAP written for reading: dictionaries, heapq and brute force. The kernels are held equal to
it.
"""
