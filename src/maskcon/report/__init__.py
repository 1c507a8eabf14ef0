"""What a run leaves behind for people: journal, tables, figures and one self-contained page. Needs no torch.

journal (JSON lines) -> tables, figures, maps -> page; `write.write_report` does all of it from plain data.
"""
