"""ccstudy: the experiments of the papers that ccstream implements, each with its figures.

`ccstudy NAME` or `python3 -m ccstream.studies NAME`. README.md says what each reproduces, study.py what a
study is made of.
"""
