"""The public API of `fairseq_plugins` under the name of the distribution.

fairseq loads `fairseq_plugins` as its user directory, so that name stays. Programs can import the
same objects from here: `encodings`, `attention`, `kernels` and `integrations.huggingface`.
"""
