"""The matrices U_1, ..., U_L and the readout u: their coordinates, their metric, their law at finite width."""
