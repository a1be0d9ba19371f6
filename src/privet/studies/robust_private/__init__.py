"""Private and robust classifiers side by side: accuracy under attack, certificates, and epsilon.

| file         | what                                                                         |
|--------------|------------------------------------------------------------------------------|
| `known`      | settings of methods on known data sets                                       |
| `choices`    | settings from that table, from a file and from the command line, in layers   |
| `cells`      | who takes part: (method, analysis, epsilon, seed), from the registry         |
| `protocol`   | how all of them are attacked and certified                                   |
| `public`     | which data may be studied, and the study's own ledger                        |
| `training`   | trains a cell, or goes on with it                                            |
| `measuring`  | attacks, certificates, audit of a release                                    |
| `published`  | a paper's own certificate, as claimed and as it must be                      |
| `statements` | claimed, proved and audited epsilon of a card                                |
| `study`      | all cells, each with a record on disk                                        |
| `working`    | the same by several processes                                                |
| `results`    | figures over seeds, and tests; from the records alone                        |
| `tables`     | the same as tables                                                           |
| `plots`      | the same as plots                                                            |
| `page`       | one page with all of it                                                      |
| `writing`    | all of that onto disk                                                        |
"""
