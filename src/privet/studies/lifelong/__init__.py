"""Tasks one after another: the tables and figures of L2DP-ML, under privacy that is proved.

A cell is one stream that is learned by one contender: `privet lifelong fit` into a folder of its
own. What can be shared with the study `robust_private` is from there: records, figures over seeds,
tables, plots, page.

| file         | what                                                                         |
|--------------|------------------------------------------------------------------------------|
| `known`      | settings of contenders on known streams                                      |
| `contenders` | who takes part                                                               |
| `streams`    | which tasks: the same for all contenders of a seed                           |
| `cells`      | (stream, contender, epsilon, seed), and what each learns with                |
| `learning`   | a cell's stream, from its start or from where it was killed                  |
| `measuring`  | accuracy after every task, as the stream's folder has it                     |
| `results`    | figures over seeds, tests                                                    |
| `published`  | the thesis's own figures                                                     |
| `tables`     | all of it as tables                                                          |
| `plots`      | the same as plots                                                            |
| `writing`    | all of that onto disk                                                        |
"""
