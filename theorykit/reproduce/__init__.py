"""The papers' experiments, run whole: settings in, one labelled result out. Drawing is for `theorykit.plots`."""
