VERSION = 1
def add_arguments(p): pass
def sentences_from(a): return {}
def write_corpus(*a, **k): raise NotImplementedError
