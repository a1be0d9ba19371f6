"""What certificates cost: evaluations of the classifier, and images in a minute.

| file         | what is in it                                                     |
|--------------|-------------------------------------------------------------------|
| `cohen.py`   | the loop of Cohen et al., one image after another: the yardstick  |
| `study.py`   | votes of each mode against n for everyone; pace at equal n        |
| `results.py` | the table and the plot                                            |
"""
