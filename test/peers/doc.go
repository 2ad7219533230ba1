// Package peers is a module of its own for the programs and libraries that the
// tests meet: the reference plugins, cnitool, and Multus' reader of device-info
// files. The project itself does not depend on what they need.
package peers
