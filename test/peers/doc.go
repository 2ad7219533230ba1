// Package peers is a module for the other projects' programs and libraries that the tests use: the reference plugins,
// cnitool, and Multus' reader of device-info files. The project itself does not depend on their dependencies.
package peers
