package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// The file can be on disk (images.PathFile), in memory, or come from a reader
// (images.ReaderFile).
func ExampleGateway_EditImage() {
	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{})})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = g.Close() }()
	var cube bytes.Buffer
	if err := png.Encode(&cube, image.NewGray(image.Rect(0, 0, 64, 64))); err != nil {
		fmt.Println(err)
		return
	}

	r, err := g.EditImage(context.Background(), &images.Edit{
		Model:  "imagegen-2",
		Prompt: "make it blue",
		Images: []images.File{images.BytesFile("cube.png", cube.Bytes())},
		Size:   "1024x1024",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	file, err := r.Images()[0].Bytes()
	fmt.Printf("%.3s, %v\n", file[1:], err)
	// Output: PNG, <nil>
}
