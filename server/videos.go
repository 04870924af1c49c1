package server

import "net/http"

// showVideo is GET /v1/videos/generations/{id}.
func (x *exchange) showVideo() error {
	record, err := x.VideoRecord(x.r.Context(), x.id)
	if err != nil {
		return err
	}
	x.write(http.StatusOK, "application/json", record)
	return nil
}
