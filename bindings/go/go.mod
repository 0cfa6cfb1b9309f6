module dormouse.example/dormouse

go 1.25
