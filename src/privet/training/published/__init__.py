"""Methods as their papers have them, and the parts that they are made of."""
