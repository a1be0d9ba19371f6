"""A classifier that is there already, behind a denoiser: the figures of TransDenoiser, and more.

One half of a public data set is declared public: the classifier learns from it. The other half is
taken for private: every other contender learns from that. What can be shared with the study
`robust_private` is from there: records, figures over seeds, tables, plots, page.

| file         | what                                                                         |
|--------------|------------------------------------------------------------------------------|
| `known`      | settings of contenders on known data sets                                    |
| `contenders` | who takes part                                                               |
| `cells`      | their cells: (contender, epsilon, seed), and what each is trained with       |
| `halves`     | the public half and the private one                                          |
| `measuring`  | certificates, and attacks on the classifier alone and on the whole           |
| `results`    | figures over seeds, gains over the public denoiser, tests                    |
| `tables`     | the same as tables                                                           |
| `plots`      | the same as plots                                                            |
| `writing`    | all of that onto disk                                                        |
"""
