"""Claims with their evidence and a label, written for this library: for training, calibration and tests of verifiers."""
