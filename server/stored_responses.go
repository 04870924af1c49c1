package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
)

// showResponse is GET /v1/responses/{id}.
func (x *httpExchange) showResponse() error {
	query := x.r.URL.Query()
	if stream := query.Get("stream"); stream != "" && stream != "false" {
		return fault.Invalid("stream", "A stored response is not streamed again. Leave \"stream\" out.")
	}
	if query.Has("starting_after") {
		return fault.Invalid("starting_after", "A stored response is not streamed again. Leave \"starting_after\" out.")
	}
	body, err := x.entry.StoredResponse(x.id)
	if err != nil {
		return err
	}
	x.write(http.StatusOK, "application/json", body)
	return nil
}

// deleteResponse is DELETE /v1/responses/{id}.
func (x *httpExchange) deleteResponse() error {
	if err := x.entry.DeleteResponse(x.id); err != nil {
		return err
	}
	id, err := json.Marshal(x.id)
	if err != nil {
		return err
	}
	x.write(http.StatusOK, "application/json", []byte(`{"id":`+string(id)+`,"object":"response","deleted":true}`))
	return nil
}

// listInput is GET /v1/responses/{id}/input_items.
func (x *httpExchange) listInput() error {
	const most = 100
	query := x.r.URL.Query()
	page := gateway.InputItemsOptions{After: query.Get("after")}
	for _, name := range [...]string{"include", "include[]"} { // clients spell it so or so
		page.Include = append(page.Include, query[name]...)
	}
	if query.Has("limit") {
		var err error
		if page.Limit, err = strconv.Atoi(query.Get("limit")); err != nil || page.Limit < 1 || page.Limit > most {
			return fault.Invalid("limit", fmt.Sprintf(`"limit" must be a whole number from 1 to %d.`, most))
		}
	}
	order := query.Get("order")
	if query.Has("order") && order != "asc" && order != "desc" {
		return fault.Invalid("order", `"order" must be "asc" or "desc".`)
	}
	page.Ascending = order == "asc"
	body, err := x.entry.ResponseInputItems(x.id, page)
	if err != nil {
		return err
	}
	x.write(http.StatusOK, "application/json", body)
	return nil
}
