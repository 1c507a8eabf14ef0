"""Find, judge, edit and store the kinds inside coarse classes, without torch."""
