//go:build !dormouse_shared

package dormouse

// #cgo pkg-config: dormouse-static
import "C"
