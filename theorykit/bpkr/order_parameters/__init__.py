"""The matrices U_1, ..., U_L and the readout u: their coordinates, metric, and law at finite width."""
