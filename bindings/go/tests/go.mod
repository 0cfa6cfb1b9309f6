module dormouse.example/dormouse/tests

go 1.25.0

replace dormouse.example/dormouse => ..

require (
	dormouse.example/dormouse v0.0.0
	github.com/eclipse/paho.mqtt.golang v1.5.0
	github.com/gorilla/websocket v1.5.3
	github.com/mochi-mqtt/server/v2 v2.7.9
	golang.org/x/net v0.48.0
	google.golang.org/grpc v1.76.0
)

require (
	github.com/rs/xid v1.4.0 // indirect
	golang.org/x/sync v0.19.0 // indirect
	golang.org/x/sys v0.39.0 // indirect
	golang.org/x/text v0.32.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250804133106-a7a43d27e69b // indirect
	google.golang.org/protobuf v1.36.6 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
