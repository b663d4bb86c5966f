"""Claims of the paper on dual positional encoding, all of them mathematics."""

from fairseq_plugins.papers.claims import computed

PAPER = "Dual positional encoding"

DUAL_CLAIMS = (
    computed(
        PAPER,
        "sinusoids_tell_the_start",
        "Appendix G",
        "the sinusoidal encoding (SPE) is forward-aware and not backward-aware",
    ),
    computed(
        PAPER,
        "reversed_sinusoids_tell_the_end",
        "Appendix D, Corollary 3.6",
        "the reversed sinusoidal encoding (RSPE) is backward-aware and not forward-aware",
    ),
    computed(
        PAPER,
        "dual_sinusoids_tell_both",
        "Appendix G",
        "the dual encoding (DPE) is forward- and backward-aware, by one half of its features each",
    ),
    computed(
        PAPER,
        "relative_terms_tell_neither",
        "Appendix C, Corollary 3.5",
        "relative encodings are neither forward- nor backward-aware",
    ),
    computed(
        PAPER,
        "added_sinusoids_have_no_sum",
        "Appendix E",
        "for the sum of both (ASPE), unlike for SPE, no single formula gives the vector of a sum "
        "of two positions at all lengths",
    ),
)
