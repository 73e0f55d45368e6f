"""FX repros: the part of the program's graph that one launch computes, as a script with its recorded tensors."""
