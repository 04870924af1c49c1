package images

import (
	"errors"
	"fmt"

	"github.com/tollhouse-ai/gateway/fault"
)

// readFiles finds the images and the mask and reads their headers.
func (e *Edit) readFiles() error {
	p := &e.request.parsed.problem
	for i := range e.form.Parts {
		part := &e.form.Parts[i]
		if !isFile(part) || absent(part) {
			continue
		}
		f := fileOf(part)
		err := f.read()
		var unfit InvalidImageError
		switch {
		case errors.As(err, &unfit):
			p.Refuse(part.Name, fmt.Sprintf("The file %q in %q cannot be used: %s.", clip(f.Name), part.Name, unfit))
		case err != nil:
			return fault.Wrap(fault.InternalError, "The gateway cannot read the form any more.", err)
		}
		if part.Name == maskPart {
			e.Mask = &f
		} else {
			e.Images = append(e.Images, f)
		}
	}
	return nil
}

// checkFiles are the rules of the images and the mask.
func (e *Edit) checkFiles() {
	p := &e.request.parsed.problem
	if len(e.Images) == 0 {
		p.Refuse(imagePart, `"image" is missing: it is the file that is to be changed.`)
		return
	}
	if rules := e.request.parsed.family.Edit; rules != nil {
		e.checkImages(rules)
	}
	if e.Mask == nil {
		return
	}
	first := &e.Images[0]
	switch m := e.Mask; {
	case m.ContentType != PNG:
		p.Refuse(maskPart, `"mask" must be a PNG file, whose transparent area is what is to be changed.`)
	case m.Size > maxMask:
		p.Refuse(maskPart, fmt.Sprintf("The mask is larger than %d bytes.", maxMask))
	case m.Width != first.Width || m.Height != first.Height:
		p.Fail(&fault.Error{
			Code: fault.InvalidMask, Param: maskPart,
			Message: fmt.Sprintf("The mask is %d by %d pixels large and the image %d by %d: they must be of the same size.", m.Width, m.Height, first.Width, first.Height),
		})
	}
}

// checkImages are those that depend on the family.
func (e *Edit) checkImages(rules *EditRules) {
	p := &e.request.parsed.problem
	switch {
	case len(e.Images) > rules.Images && rules.Images == 1:
		p.Refuse(imagePart, fmt.Sprintf("The model %q takes one image, not %d.", e.Model, len(e.Images)))
	case len(e.Images) > rules.Images:
		p.Refuse(imagePart, fmt.Sprintf("The model %q takes at most %d images, not %d.", e.Model, rules.Images, len(e.Images)))
	case e.Mask != nil && !rules.Mask:
		p.Refuse(maskPart, fmt.Sprintf("The model %q takes no mask.", e.Model))
	}
	for i := range e.Images {
		f := &e.Images[i]
		switch {
		case f.Size > rules.MostBytes:
			p.Refuse(imagePart, fmt.Sprintf("The image is larger than the %d bytes that the model %q takes.", rules.MostBytes, e.Model))
		case rules.Legacy && (f.ContentType != PNG || f.Width != f.Height):
			p.Refuse(imagePart, fmt.Sprintf("The model %q takes square PNG files only.", e.Model))
		}
	}
}
