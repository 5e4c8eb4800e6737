"""Publishing: gathering, packing, sending."""
