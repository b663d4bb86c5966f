"""Commands of ``fairseq-pe``, a module each: options, and the call that runs them."""
