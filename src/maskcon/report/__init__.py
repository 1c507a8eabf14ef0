"""The report page about runs, with its figures and tables, and the inspection of datasets. Needs no torch.

journal (JSON lines) -> tables, figures, maps -> page; `write.write_report` writes all of them from plain data.
"""
