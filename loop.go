package gateway

// CheckVia says which gateways the request has passed: the values of its Via
// header. Call it before [Exchange.Call], if there are any. A request that has
// passed this gateway before, or too many others, is a 508 (faults.md, row 36);
// the rest of the way is told to the upstream.
func (x *Exchange) CheckVia(via []string) error {
	trail, err := x.g.trail.After(via)
	if err != nil {
		return err
	}
	x.trail = trail
	return nil
}
