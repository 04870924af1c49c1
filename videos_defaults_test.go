package gateway

import "testing"

func TestAsManyWaitForVideosAsCallsMayRunButAtMost4096(t *testing.T) {
	for _, c := range []struct{ waiting, calls, want int }{
		{0, 0, 4096}, {0, -1, 4096}, {0, 1 << 20, 4096}, {0, 100, 100}, {7, 3, 7}, {5000, 100, 5000}, {-1, 100, -1},
	} {
		o := Options{Video: VideoOptions{MaxWaiting: c.waiting}, Admission: Admission{MaxCalls: c.calls}}
		if o.setDefaults(); o.Video.MaxWaiting != c.want {
			t.Errorf("%+v: %d", c, o.Video.MaxWaiting)
		}
	}
}
