"""ccstudy: the experiments of the papers that ccstream implements, each with its figures.

`ccstudy NAME` or `python3 -m ccstream.studies NAME`. README.md lists what each study reproduces; study.py describes the
interface of a study.
"""
