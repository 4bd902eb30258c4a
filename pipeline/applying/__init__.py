"""Records of a log on their way into a state: in offset order, judged, applied once each or set aside."""
