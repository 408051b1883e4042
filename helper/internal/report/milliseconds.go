package report

import "time"

// MS is a duration as events and reports have it, in milliseconds.
func MS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
