"""SQuAD: questions whose answer is a span of a text (Rajpurkar et al. 2016, 2018).

`examples` reads the official files, `features` cuts them into windows of tokens, `predictions`
turns logits into text and `metrics` compares that with the answers.
"""
