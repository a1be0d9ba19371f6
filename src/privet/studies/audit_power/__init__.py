"""What audits find: how near to a known epsilon, how often too much, and which flaws they see.

| file         | what is in it                                                               |
|--------------|-----------------------------------------------------------------------------|
| `ideal.py`   | scores of the exact Gaussian mechanism under the best attack there is       |
| `study.py`   | power of every estimator; false alarms; sound and broken subjects           |
| `results.py` | the tables                                                                  |
"""
