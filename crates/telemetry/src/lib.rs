//! Stage times, one-second windows, HDR histograms and their printed forms.
