"""What operators have to do: floating-point operations and bytes, from the inputs that they got."""
