"""Tables of fused experts: their sizes, spaces, races and files."""
