package busy

import (
	"testing"
	"time"
)

func TestTheMiddleFigureCounts(t *testing.T) {
	for _, c := range []struct {
		rates []float64
		want  float64
	}{
		{nil, 0}, {[]float64{5}, 5}, {[]float64{1, 9}, 9}, {[]float64{100, 3, 4}, 4}, {[]float64{1, 7, 900, 8, 2}, 7},
	} {
		if got := middle(c.rates); got != c.want {
			t.Errorf("%v: %v", c.rates, got)
		}
	}
}

func TestACopierMeasuresBehindTheCallersBack(t *testing.T) {
	var c Copier
	if c.Now() != 0 {
		t.Error("it knows a rate without a measurement")
	}
	for until := time.Now().Add(10 * time.Second); c.Now() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it measures nothing")
		}
	}
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c.Now()
		c.mu.Lock()
		known := len(c.rates)
		c.mu.Unlock()
		if known > figures {
			t.Fatalf("it keeps %d figures", known)
		}
		if known == figures {
			return
		}
		if time.Now().After(until) {
			t.Fatal("it measures no more")
		}
	}
}
